"""Reports of a run: what a terminal shows, JUnit for machines, HTML for people, and one run beside another."""
