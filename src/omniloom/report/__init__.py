"""Reports: what runs wrote into their folders, as one page for people. Reads files only; needs no torch."""
