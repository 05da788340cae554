"""One audit for every search: cases in, findings out, in a run folder that can be resumed and verified."""
