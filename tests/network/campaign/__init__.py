"""Random faults with real processes: ``python -m tests.network.campaign`` (`make campaign`)."""
