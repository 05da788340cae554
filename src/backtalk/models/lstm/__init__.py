"""Our LSTM dialogue models and language models."""
