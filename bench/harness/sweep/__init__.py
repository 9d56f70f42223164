"""The sweep: every knob of Drumlin's that a user can't turn, turned; law 3 says that no turn of one gains a tenth."""
