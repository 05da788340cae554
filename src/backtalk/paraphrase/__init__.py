"""Other ways to say a target: by rules, by a trained model, and what a training list gains from them."""
