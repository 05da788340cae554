"""What a run found, as one record (`build`) and its faces: the console and a self-contained page."""
