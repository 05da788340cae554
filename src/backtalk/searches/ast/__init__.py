"""An adversary that learns likely prompts which turn a model toxic (Hardy et al. 2024, ASTPrompter)."""
