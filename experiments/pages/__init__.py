"""The pages' tables and numbers, made from stored results: `python -m experiments pages`.

A page marks what is generated; the text between the marks is replaced by the value of a function of this package.
"""
