"""The servers' life: beside the driver, or on executors, where lost ones are replaced."""
