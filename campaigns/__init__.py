"""Campaigns against the library: runs that are killed, files that are broken, hours of use."""
