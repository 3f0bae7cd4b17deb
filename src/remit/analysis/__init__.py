"""What people read about runs: values folded from events, and no way to change a run.

cells       text as a terminal shows it: made harmless, measured, cut, wrapped
figures     numbers in as few characters as say enough
view        a run as a person follows it, folded from its events
layout      what the view says as rows of so many cells
"""
