"""The paper's figures and tables, each one command: `python -m experiments NAME`."""
