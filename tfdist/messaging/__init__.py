"""Authenticated messages between the processes of a job. Loads the standard library only.

`handshake` is how two processes prove to each other that they know the job's secret, `connection` a socket with frames
of JSON and an end that no wait outlasts. The transports, the doctor and the rendezvous use them.
"""
