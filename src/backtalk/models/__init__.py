"""Models: our LSTMs, and whatever else can stand behind the model protocol."""
