"""Reporting: what a run showed, as figures and one HTML page; `report.write_report` is all that a caller needs."""
