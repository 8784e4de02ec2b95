"""Limits of the idle causes (METHOD 1.3). A module of its own without numpy, so that the command line's help can name them."""

from __future__ import annotations

KERNEL_GAP_NS = 3_000
"""Idle no longer than this between queued activities is the device's own scheduling."""

SYNC_SLACK_NS = 2_000
"""A blocking call that ended this much before the gap still explains it: the clocks of host and device
differ by about this much, and the call needs time to return."""
