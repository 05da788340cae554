"""An audit by a learnt adversary: conversations from harmless openings (`--search ast`)."""
