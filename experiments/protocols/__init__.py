"""What several experiments share: options, runs, scores and summaries."""
