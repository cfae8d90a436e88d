"""A hundred thousand calls through one gateway, some of which meet a fault: does it keep anything of them?"""
