"""`python -m degp`, and `torchrun … -m degp`: the command line without its script."""

from degp.cli import main

if __name__ == "__main__":
    main()
