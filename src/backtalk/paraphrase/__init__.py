"""Other ways to say a target: by rules, and what a training list gains from them."""
