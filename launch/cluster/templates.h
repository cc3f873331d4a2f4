// The templates of job scripts, configs/cluster/*.sh, as they were when this was built.
#pragma once

namespace lockstep {

extern const char* const kSlurmTemplate;
extern const char* const kPbsTemplate;

}  // namespace lockstep
