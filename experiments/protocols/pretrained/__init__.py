"""Light members on a pre-trained network, against what else can be put on its features."""
