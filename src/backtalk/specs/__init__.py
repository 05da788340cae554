"""What each verb does: a frozen dataclass whose fields are the verb's flags and the keys of its YAML file."""
