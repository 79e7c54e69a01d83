"""What a PMS said, for every kind alike: read, told apart, compared with what was asked, and made fit to be kept. Pure."""
