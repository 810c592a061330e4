"""`python -m campaigns NAME`: tries to break the library, and says what it found."""

import typer

from campaigns import bits, fuzz, kill, mutants, soak

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command(name="kill")(kill.main)
app.command(name="fuzz")(fuzz.main)
app.command(name="bits")(bits.main)
app.command(name="soak")(soak.main)
app.command(name="mutants")(mutants.main)

if __name__ == "__main__":
    app()
