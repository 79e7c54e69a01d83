"""Submissions: finding them, looking them up in their PMS, and repairing one or many; dead letters and their replay."""
