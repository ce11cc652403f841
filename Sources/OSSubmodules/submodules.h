// Empty: see module.modulemap.
#pragma once
