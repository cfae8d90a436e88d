"""Takeover: are answers that break finished without a wrong character?"""
