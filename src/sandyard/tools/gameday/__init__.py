"""Game days: a fault under load on this machine, with checks of the guarantees and the alerts."""
