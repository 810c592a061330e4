"""`python -m experiments NAME [--smoke] [--out FOLDER]`: reruns one of the paper's experiments.

`python -m experiments pages` writes the numbers of all stored results into the pages.

Those on images also run under `torchrun --nproc-per-node=R -m experiments NAME …`, which shares out the members.
"""

import typer

from degp.cli.console import Commands
from degp.runtime.cpu import tune_process
from degp.runtime.distributed import launched
from experiments import (
    active,
    bandits,
    bo,
    cifar10,
    cifar10_alpha,
    cifar10_corruptions,
    cifar10_prior,
    cifar10_sharing,
    cifar10_shift,
    cifar100,
    data_sets,
    fmnist,
    intervals,
    peers,
    pretrained,
    toy,
    uci,
)
from experiments.pages import command as pages

# many small networks, which ranks would only slow down
ONE_PROCESS = ("toy", "uci", "intervals", "peers", "bandits", "active", "bo", "pretrained")

app = typer.Typer(
    cls=Commands, help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
app.command(name="toy")(toy.main)
app.command(name="uci")(uci.main)
app.command(name="intervals")(intervals.main)
app.command(name="peers")(peers.main)
app.command(name="pretrained")(pretrained.main)
app.command(name="bandits")(bandits.main)
app.command(name="active")(active.main)
app.command(name="bo")(bo.main)
app.command(name="fmnist")(fmnist.main)
app.command(name="cifar10")(cifar10.main)
app.command(name="cifar10_corruptions")(cifar10_corruptions.main)
app.command(name="cifar10_sharing")(cifar10_sharing.main)
app.command(name="cifar10_alpha")(cifar10_alpha.main)
app.command(name="cifar10_prior")(cifar10_prior.main)
app.command(name="cifar10_shift")(cifar10_shift.main)
app.command(name="cifar100")(cifar100.main)
app.command(name="pages")(pages.main)
app.add_typer(data_sets.app, name="data")


@app.callback()
def root(context: typer.Context) -> None:
    """Each experiment writes its figures and `metrics.json` to `experiments/results/NAME/`."""
    rank, ranks = launched()
    if ranks > 1 and context.invoked_subcommand in ONE_PROCESS:
        if rank == 0:
            typer.echo(
                f"{context.invoked_subcommand} must be started as one process, but torchrun has started {ranks}: they "
                f"would all do the same work and write the same files; run python -m experiments "
                f"{context.invoked_subcommand}",
                err=True,
            )
        raise typer.Exit(2)


if __name__ == "__main__":
    tune_process()
    app()
