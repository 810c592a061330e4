"""How computations run: execution strategies, streams, kernels, ranks and files; never what they compute."""
