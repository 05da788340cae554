"""What is made of a finished run: summary, gates, comparison, export, JUnit."""
