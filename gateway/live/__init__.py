"""Live events of races for viewers; without a viewer, they cost a call nothing."""
