print("blueferry")
