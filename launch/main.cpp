#include "launch/app.h"

int main(int argc, char** argv) { return lockstep::run(argc, argv, lockstep::builtin()); }
