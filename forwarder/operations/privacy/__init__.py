"""What must not be kept, or not for ever: guests are erased, old data deleted, card data looked for. Every change is audited."""
