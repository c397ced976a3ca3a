"""Loops of long tasks that pull and push at their own pace, within a bound: BSP, SSP, ASP."""
