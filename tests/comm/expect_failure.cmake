# cmake -DCOMMAND="a;b;c" -DCODE=69 -DWORDS="regular expression" -P expect_failure.cmake
# Runs a command that must end with this exit code, and say this, and not hang; where LOCKSTEP_TEST_BOUNDS is 1, within 10 seconds.
set(seconds 120)
if("$ENV{LOCKSTEP_TEST_BOUNDS}" STREQUAL "1")
  set(seconds 10)
endif()
execute_process(COMMAND ${COMMAND} RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text TIMEOUT ${seconds})
if(NOT code STREQUAL CODE OR NOT text MATCHES "${WORDS}")
  message(FATAL_ERROR "exit ${code} (expected ${CODE}), expected words: ${WORDS}\n${text}")
endif()
