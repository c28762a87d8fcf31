"""The stream of a change: which generation operated at its write time, and which id its token has there."""
