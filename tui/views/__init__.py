"""One file a view: what the session says goes in; a screen of it comes out."""
