// libcuda.so.1 of a machine without a GPU that takes code: cuDNN chooses and compiles kernels for a card that it is
// told of, and hands them to the driver. Everything else is refused, as by the toolkit's stub of the driver.
#include <cuda.h>

#include <cstdint>

extern "C" {

CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*, void**,
                           unsigned) {
  *library = reinterpret_cast<CUlibrary>(uintptr_t(1));
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char*) {
  *kernel = reinterpret_cast<CUkernel>(uintptr_t(1));
  return CUDA_SUCCESS;
}
CUresult cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "there is no GPU";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult, const char** text) {
  *text = "CUDA_ERROR_STUB_LIBRARY";
  return CUDA_SUCCESS;
}

}  // extern "C"

// By their names alone: nothing is passed on.
#define REFUSED(name)                                                                              \
  extern "C" __attribute__((visibility("default"))) CUresult lockstep_refused_##name() asm(#name); \
  CUresult lockstep_refused_##name() { return CUDA_ERROR_STUB_LIBRARY; }
REFUSED(cuInit)
REFUSED(cuGetProcAddress_v2)
REFUSED(cuGetExportTable)
REFUSED(cuDeviceGet)
REFUSED(cuDeviceGetCount)
REFUSED(cuDeviceGetAttribute)
REFUSED(cuDevicePrimaryCtxRetain)
REFUSED(cuDevicePrimaryCtxRelease)
REFUSED(cuDevicePrimaryCtxReset)
REFUSED(cuCtxGetCurrent)
REFUSED(cuCtxGetDevice)
REFUSED(cuCtxGetLimit)
REFUSED(cuCtxPushCurrent)
REFUSED(cuCtxPopCurrent)
REFUSED(cuStreamGetCtx)
REFUSED(cuStreamSynchronize)
REFUSED(cuLinkCreate)
REFUSED(cuLinkAddData)
REFUSED(cuLinkComplete)
REFUSED(cuLinkDestroy)
REFUSED(cuLinkCreate_v2)
REFUSED(cuLinkAddData_v2)
REFUSED(cuLinkAddFile_v2)
REFUSED(cuLibraryLoadFromFile)
REFUSED(cuKernelGetAttribute)
REFUSED(cuKernelSetAttribute)
REFUSED(cuModuleLoadData)
REFUSED(cuModuleLoadDataEx)
REFUSED(cuModuleLoadFatBinary)
REFUSED(cuModuleUnload)
REFUSED(cuModuleGetFunction)
REFUSED(cuModuleGetGlobal_v2)
REFUSED(cuFuncGetAttribute)
REFUSED(cuFuncSetAttribute)
REFUSED(cuOccupancyMaxPotentialClusterSize)
REFUSED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
REFUSED(cuTensorMapEncodeTiled)
REFUSED(cuMemcpyDtoH_v2)
REFUSED(cuLaunchKernel)
REFUSED(cuLaunchKernelEx)
REFUSED(cuLaunchCooperativeKernel)
