"""Methods that make the words of hits less likely: one a file, registered under the file's name."""
