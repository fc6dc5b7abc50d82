"""A child process of `tfdist.verify`; see `child`."""

from tfdist.recording.child import main

main()
