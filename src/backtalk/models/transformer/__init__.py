"""Hugging Face models behind the model protocol. transformers and peft are imported where they are used."""
