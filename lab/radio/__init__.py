"""The lab's radio: virtual Bluetooth controllers for the kernel, and the devices of a fleet file on the air."""
