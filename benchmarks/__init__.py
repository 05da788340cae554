"""Speed measurements: of our searches and scorers against ceilings, and beside other tools (peers/)."""
