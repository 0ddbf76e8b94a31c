"""Tests of the page in a real browser; a package, so that they share one browser and end it."""
