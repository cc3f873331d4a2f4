#include "launch/app.h"

int main(int argc, char** argv) { return lockstep::run_program(argc, argv, lockstep::builtin()); }
