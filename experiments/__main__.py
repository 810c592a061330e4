"""`python -m experiments NAME [--smoke] [--out FOLDER]`: reruns one of the paper's experiments."""

import typer

from experiments import toy, uci

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command(name="toy")(toy.main)
app.command(name="uci")(uci.main)


@app.callback()
def root() -> None:
    """Each experiment writes its figures and `metrics.json` to `experiments/results/NAME/`."""


if __name__ == "__main__":
    app()
