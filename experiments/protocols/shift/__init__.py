"""Images under shift: controls that could explain a lead away, augmentation, sets to choose by, and scores."""
