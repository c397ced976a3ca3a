"""What is released: the sdist and the wheel, and the files of services that build and test them."""
