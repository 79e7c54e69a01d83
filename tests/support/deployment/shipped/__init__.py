"""What is shipped beside the package, run or rendered as its users do: composition, chart, proxy, alerts. Changes none of it."""
